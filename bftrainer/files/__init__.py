"""File tools: open files of any form, write them whole or not at all, read them with errors that name the place."""
