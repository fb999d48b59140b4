"""Workbooks for tests."""

from pathlib import Path
from typing import IO

from openpyxl import Workbook


def save_sheets(target: Path | IO[bytes], sheets: dict[str, list[list[object]]]) -> None:
    """Write a workbook with the rows of these sheets."""
    workbook = Workbook()
    workbook.remove(workbook.active)
    for title, rows in sheets.items():
        sheet = workbook.create_sheet(title)
        for row in rows:
            sheet.append(row)
    workbook.save(target)
