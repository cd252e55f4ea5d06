"""Tables of a sweep as files: CSV text and Parquet bytes, the same bytes for the same rows."""

import csv
import importlib
import io
from typing import Any

from fusesolve.errors import MissingError
from fusesolve.whatif.rows import Table, column_types


def format_csv(table: Table) -> str:
    """CSV with a header line, numbers in full precision; what there is not is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(["" if cell is None else cell for cell in row] for row in table.rows)
    return stream.getvalue()


def load_parquet_library() -> Any:
    """Load pyarrow with its Parquet module; MissingError that names the extra where it is not installed."""
    try:
        importlib.import_module("pyarrow.parquet")
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError as error:
        raise MissingError("a .parquet file needs the extra parquet: pip install 'fusesolve[parquet]'") from error


def format_parquet(table: Table) -> bytes:
    """One Parquet file: text, 64-bit integer and double columns, null for what there is not."""
    arrow = load_parquet_library()
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    types = column_types(table)
    arrays = [
        arrow.array([_as(row[place], types[name]) for row in table.rows], type=kinds[types[name]])
        for place, name in enumerate(table.columns)
    ]
    sink = arrow.BufferOutputStream()
    arrow.parquet.write_table(arrow.table(arrays, names=list(table.columns)), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _as(cell: Any, kind: type) -> Any:
    return None if cell is None else kind(cell)
