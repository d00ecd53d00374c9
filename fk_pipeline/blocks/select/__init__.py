"""Takes a SELECT apart into blocks, each of which writes SQL over tables of one's choice. No Spark."""
