"""Files: opened whatever their form, written whole or not at all, read with messages that name the place."""
