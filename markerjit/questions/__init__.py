"""The language of questions: an expression about an event, in Python's syntax, with C's types.

    types.py      the types of values, and what C converts to what
    syntax.py     the text as a tree of the allowed subset
    scope.py      the names that an expression may use, for each sort of event
    ir.py         typed expressions, and how they are shown
    constants.py  calculations with constants
    arrows.py     -> and the prefix * of C, for Python's parser
    members.py    members of structures as reads of memory
    typed.py      a tree and a scope as a typed expression
    ask.py        a text and several scopes as a question for each
    selection.py  named expressions that are recorded in place of the fields
    columns.py    typed expressions computed for many events at once, with numpy

Nothing of an expression is evaluated by Python itself. The language is in
docs/reference/questions.md. This room does not know where values come from.
"""

from markerjit.questions.ask import Lack, Question, ask, ask_again
from markerjit.questions.scope import Scope, scope_of

__all__ = ["Lack", "Question", "Scope", "ask", "ask_again", "scope_of"]
