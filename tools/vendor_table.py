"""Writes the table in ``docs/vendors.md`` from the profiles of the vendors. The text before the table stays.

``python -m tools.vendor_table`` writes the table; ``--check`` only compares.
"""

from __future__ import annotations

import sys

from agent_memory_log.transcript.vendors.profiles import ANY_ID, ANY_VENDOR, VENDORS, Vendor
from tools.generated import ROOT, write_or_check

PAGE = ROOT / "docs" / "vendors.md"
MARK = "<!-- Written by tools/vendor_table.py: run `make generate`. -->\n"
HEAD = """
| Vendor | Hosts | Text reasoning goes into | Call ids | Left out of requests |
|---|---|---|---|---|
"""


def row(vendor: Vendor) -> str:
    """Return the row of a vendor."""
    hosts = ", ".join(f"`{host}`" for host in vendor.hosts) or (
        "any other" if vendor is ANY_VENDOR else "pass the name"
    )
    reasoning = f"`{vendor.reasoning}`" if vendor.reasoning else ""
    if vendor.reasoning == "content":
        reasoning = "a `thinking` part"
    ids = "any" if vendor.call_ids == ANY_ID else f"`{vendor.call_ids}`, at most {vendor.longest_call_id} characters"
    refused = ", ".join(f"`{key}`" for key in sorted(vendor.refuses))
    return f"| `{vendor.name}` | {hosts} | {reasoning} | {ids} | {refused} |"


if __name__ == "__main__":
    text, _, _ = PAGE.read_text().partition(MARK)
    table = "\n".join(row(vendor) for vendor in VENDORS.values())
    sys.exit(write_or_check({PAGE: text + MARK + HEAD + table + "\n"}))
