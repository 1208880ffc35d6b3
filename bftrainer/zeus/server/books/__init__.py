"""Books of the batch-size server: what is believed of reports, and how jobs change that live on."""
