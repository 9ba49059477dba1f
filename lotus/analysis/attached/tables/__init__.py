"""What processes, threads and functions of a watched program used."""
