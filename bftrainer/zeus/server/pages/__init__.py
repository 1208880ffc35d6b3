"""Status pages of the server: jobs in a browser, without scripts and without other sites."""

from bftrainer.zeus.server.pages.status_pages import pages

__all__ = ["pages"]
