"""Importers, one module for each family of log formats."""
