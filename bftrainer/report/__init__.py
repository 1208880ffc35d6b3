"""What a run says: numbers (`metrics`, `intervals`), and figures by subject (matplotlib, imported to draw)."""
