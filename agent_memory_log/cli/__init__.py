"""``amlog``, the command line. Imports nothing: ``program`` starts the process, ``main`` runs the command.

One module for each command; ``app`` registers them. ``options``, ``outfile``, ``output``,
``run_names`` and ``terminal_text`` are what they share.

Statuses: 0; 1 for an error or a failed check; 2 for a wrong use; 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP;
141 when the reader of the output has gone, as in ``amlog show … | head``.
"""
