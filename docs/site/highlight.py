"""Code as HTML with classes for its tokens; site.css has their colours."""
import html

import pygments
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

_FORMATTER = HtmlFormatter(nowrap=True)
_NAMES = {"c++": "cpp", "cc": "cpp", "h": "cpp", "sh": "bash", "py": "python", "": "text"}
_lexers = {}


def code_html(text, language):
    language = _NAMES.get(language, language)
    if language == "text":
        return f'<pre class="plain"><code>{html.escape(text, quote=False).rstrip()}</code></pre>'
    if language not in _lexers:
        try:
            _lexers[language] = get_lexer_by_name(language, stripnl=False)
        except pygments.util.ClassNotFound:
            return f"<pre><code>{html.escape(text, quote=False)}</code></pre>"
    inner = pygments.highlight(text, _lexers[language], _FORMATTER)
    return f"<pre><code>{inner.rstrip()}</code></pre>"
