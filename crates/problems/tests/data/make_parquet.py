"""Makes the Parquet files of the tests with pyarrow, the library that data sets on the hub are written with."""

import pathlib

import pyarrow
import pyarrow.parquet

here = pathlib.Path(__file__).parent
rows = [
    {
        "id": f"p{number}",
        "domain": None,
        "problem_statement": f"What is {number} + 1?",
        "ground_truth": str(number + 1),
        "input_files": '{"n.txt": "%d"}' % number if number else None,
        "tags": ["sum", "easy"],
        "source": {"page": number, "note": None},
    }
    for number in range(3)
]
table = pyarrow.Table.from_pylist(rows * 2)
pyarrow.parquet.write_table(table, here / "snappy.parquet", row_group_size=4, compression="snappy")
pyarrow.parquet.write_table(table, here / "zstd.parquet", compression="zstd")
