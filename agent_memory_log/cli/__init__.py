"""The command line ``amlog``. ``program`` starts the process and ``main`` runs one command.

Each command has its own module, and ``app`` registers them. The commands share ``options``, ``outfile``, ``output``,
``run_names`` and ``terminal_text``. This module imports nothing, so that ``program`` can handle signals early.

Exit statuses:

- 0: success.
- 1: an error or a failed check.
- 2: wrong usage.
- 129, 130 and 143: the process received SIGHUP, Ctrl-C or SIGTERM.
- 141: the reader of the output closed the pipe, as in ``amlog show … | head``.
"""
