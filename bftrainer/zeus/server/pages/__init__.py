"""Status pages of the server: jobs, trials and comparisons in a browser, without scripts and without other sites."""

from bftrainer.zeus.server.pages.status_pages import pages

__all__ = ["pages"]
