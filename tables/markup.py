"""The forms of a table for papers and pages: LaTeX with booktabs' rules, and HTML that is well-formed XML besides."""

from __future__ import annotations

import re
from html import escape

from .table import Table, texts

_SIGNS = {
    "·": r"\cdot", "×": r"\times", "⊙": r"\odot", "÷": r"\div", "−": "-", "≈": r"\approx", "≤": r"\leq", "≥": r"\geq",
    "≠": r"\neq", "→": r"\to", "√": r"\surd", "⌊": r"\lfloor", "⌋": r"\rfloor", "⌈": r"\lceil", "⌉": r"\rceil", "Σ": r"\Sigma",
    "σ": r"\sigma", "φ": r"\varphi", "α": r"\alpha", "β": r"\beta", "λ": r"\lambda", "ᵀ": r"^{\top}", "ˣ": "^{x}",
    "₀": "_{0}", "′": "'",
} | {sign: f"^{{{digit}}}" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}  # fmt: skip
_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}", "…": r"\dots{}", "\n": " ",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"} | {sign: f"${command}$" for sign, command in _SIGNS.items()})  # fmt: skip
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_latex(table: Table) -> str:
    """A floating table with a caption, for a document that uses booktabs; the notes stand below its last rule."""
    alignment = "".join("r" if column.unit else "l" for column in table.columns)
    lines = [r"% \usepackage{booktabs}", r"\begin{table}", r"\centering"]
    if table.title:
        lines.append(f"\\caption{{{latex(table.title)}}}")
    lines += [f"\\begin{{tabular}}{{{alignment}}}", r"\toprule", _row([column.name for column in table.columns]), r"\midrule"]
    lines += [_row(texts(table.columns, row)) for row in table.rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [f"\\par\\footnotesize {latex(note)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _row(words: list[str]) -> str:
    """Cells and the row's end. A bracket or star in front would be read as an option of the end before it."""
    cells = " & ".join(map(latex, words))
    return (f"{{{cells[0]}}}{cells[1:]}" if cells[:1] in ("[", "*") else cells) + r" \\"


def latex(text: str) -> str:
    r"""Text with what LaTeX would read as a command written out.

    >>> latex("2·D² & 50%")
    '2$\\cdot$D$^{2}$ \\& 50\\%'
    """
    return re.sub("-(?=-)", "-{}", text.translate(_LATEX))


def as_html(table: Table) -> str:
    """One ``table`` element with a caption, scopes for those who hear it read, and the notes in its foot."""
    lines = ["<table>"]
    if table.title:
        lines.append(f"<caption>{html(table.title)}</caption>")
    headings = "".join(f'<th scope="col">{html(column.name)}</th>' for column in table.columns)
    lines += [f"<thead><tr>{headings}</tr></thead>", "<tbody>"]
    named = not table.columns[0].unit
    for row in table.rows:
        first, *others = texts(table.columns, row)
        cells = [f'<th scope="row">{html(first)}</th>' if named else _data(first, number=True)]
        cells += [_data(text, column.unit != "") for text, column in zip(others, table.columns[1:], strict=True)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    lines.append("</tbody>")
    if table.notes:
        rows = "".join(f'<tr><td colspan="{len(table.columns)}">{html(note)}</td></tr>' for note in table.notes)
        lines.append(f"<tfoot>{rows}</tfoot>")
    return "\n".join([*lines, "</table>"]) + "\n"


def _data(text: str, number: bool) -> str:
    return f'<td style="text-align: right">{html(text)}</td>' if number else f"<td>{html(text)}</td>"


def html(text: str) -> str:
    """Text with its markup signs written out, and without the characters that XML has not."""
    return escape(_NOT_XML.sub("�", text))
