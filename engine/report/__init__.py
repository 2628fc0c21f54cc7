"""The report on a program: its estimate on a chip as one HTML page, JSON, a Perfetto trace and text."""

from engine.report.data import Feeding
from engine.report.report import Report, make_report, report_on
from engine.report.verdicts import on_other_chips

__all__ = ["Feeding", "Report", "make_report", "on_other_chips", "report_on"]
