"""A terminal as far as the launcher uses one: what a person sees in the end."""

import re

SEQUENCE = re.compile(r"\033\[([0-9;?]*)([A-Za-z])")


class Screen:
    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.history = []              # lines that have scrolled away
        self.lines = [""] * rows
        self.row = self.column = 0

    def feed(self, text):
        at = 0
        while at < len(text):
            match = SEQUENCE.match(text, at)
            if match:
                self.obey(match.group(1), match.group(2))
                at = match.end()
                continue
            c = text[at]
            at += 1
            if c == "\n":
                self.next_line()
            elif c == "\r":
                self.column = 0
            else:
                assert c.isprintable() or c == "\t", "a control character %r reached the terminal" % c
                if self.column == self.columns:
                    self.column = 0
                    self.next_line()
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[:self.column] + c + line[self.column + 1:]
                self.column += 1

    def next_line(self):
        if self.row + 1 < self.rows:
            self.row += 1
        else:
            self.history.append(self.lines.pop(0))
            self.lines.append("")

    def obey(self, numbers, letter):
        if letter == "A":
            self.row = max(0, self.row - int(numbers or 1))
        elif letter == "J":
            assert numbers in ("", "0"), numbers
            self.lines[self.row] = self.lines[self.row][:self.column]
            self.lines[self.row + 1:] = [""] * (self.rows - self.row - 1)
        else:
            assert letter == "m", "a sequence %r that may move the cursor" % letter

    def text(self):
        """All lines, those that scrolled away too, without the empty ones at the end."""
        return "\n".join(self.history + self.lines).rstrip("\n").split("\n")
