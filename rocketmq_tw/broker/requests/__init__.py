"""One module for each family of requests; `table` maps codes to handlers."""
