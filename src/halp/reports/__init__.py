"""Reports: charts, tables and the skeleton player in one HTML file that opens from disk without a network."""
