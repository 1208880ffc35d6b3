"""What commands of all subjects share."""
