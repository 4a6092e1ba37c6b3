"""Programs that generate code and data; the package never imports them."""
