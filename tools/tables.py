"""Tables that tools keep in documents, between `<!-- NAME:KEY -->` (or `<!-- NAME -->`) and `<!-- /NAME -->`."""
import pathlib
import re


class TableError(Exception):
    """A document whose tables can't be found or are out of date."""


def add_options(parser):
    parser.add_argument("--table", nargs="+", type=pathlib.Path, default=[], metavar="FILE")
    parser.add_argument("--check-tables", nargs="+", type=pathlib.Path, default=[], metavar="FILE")


def with_tables(text: str, name: str, table, where) -> str:
    """`text` with table(KEY) in place of every table; KEY is "" without one."""
    markers = re.compile(rf"(<!-- {name}(?::([^\s]+))? -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    beginnings, tables = re.findall(rf"<!-- {name}[: ]", text), markers.findall(text)
    if not tables or len(beginnings) != len(tables):
        raise TableError(f"{where}: a marker without its end, or none, of {name}")
    return markers.sub(lambda m: f"{m[1]}{table(m[2] or '')}\n{m[3]}", text)


def update(options, name: str, table, tool: str):
    """Writes into the files of --table, and compares with those of --check-tables."""
    for file in options.table + options.check_tables:
        text = file.read_text(encoding="utf-8")
        wanted = with_tables(text, name, table, file)
        if file in options.table:
            file.write_text(wanted, encoding="utf-8")
        elif text != wanted:
            raise TableError(f"{file}: a table is out of date: run tools/{tool} --table {file}")
