"""Read and write tables of rows: csv, tsv, jsonl, json, parquet, xlsx."""
