"""Pages of the ops, one for each family, from docs/ops.md, which the registry of ops writes."""
import re


class OpsPages:
    def __init__(self, text):
        parts = re.split(r"^## (.+)$", text, flags=re.M)
        self.intro = parts[0]
        self.families = dict(zip(parts[1::2], (p.strip() for p in parts[2::2])))
        self.symbols = {}
        for family in self.families:
            for op, _ in self.ops(family):
                self.symbols[op] = f"docs/ops/{family}.html#{op}"

    def ops(self, family):
        """(name, what it gives) of each op."""
        rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", self.families[family], re.M)
        return [(name, about.strip()) for name, about in rows]

    def overview(self):
        """Markdown: the families with the names of their ops."""
        out = [self.intro]
        for family in self.families:
            out.append(f"## {family}\n\nTypes, gradients and devices: [{family} ops](ops/{family}.md).\n")
            out.append(" ".join(f"[`{op}`](ops/{family}.md#{op})" for op, _ in self.ops(family)) + "\n")
        return "\n".join(out)

    def family_markdown(self, family):
        return f"# {family} ops\n\n[All ops](../ops.md)\n\n{self.families[family]}\n"
