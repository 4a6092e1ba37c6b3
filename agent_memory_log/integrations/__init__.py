"""Classes for agent frameworks that keep their state in a store of this library. Each module serves one framework.

Nothing in this library imports these modules. Each of them imports its framework, which its extra installs.
"""
