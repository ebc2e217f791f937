"""SQL92 filters: which messages a consumer wants, by an expression over their properties.

    amount > 10 AND region IN ('eu', 'us') OR TAGS IS NULL

    text ─▶ tokens.py ─▶ parsing.py ─▶ syntax.py (a tree) ─▶ compiling.py ─▶ a function of a message's properties

Expressions mean here what they mean to Apache's filter, quirks included: `not a = 5` is `(not a) = 5`, text after a
complete expression is ignored, `1 = z` is false and `z = 1` is null where z is missing. `numbers.py` reads numbers
as Java does. Evaluation has four outcomes: true, false, null and an error; only true delivers a message.

A text is compiled once (`Compiler` keeps the last hundred). The cost of an expression is bounded: by LENGTH_MAX,
TOKENS_MAX, DEPTH_MAX and STEPS_MAX, and no part of an expression is evaluated twice for a message.

Java: SelectorParser, SqlFilter, and the classes of org.apache.rocketmq.filter.expression.
"""

from kourou.broker.sql92.compiling import CACHED_MAX, Compiler, EvaluationError, Expression, compile_expression
from kourou.broker.sql92.syntax import DEPTH_MAX, LENGTH_MAX, STEPS_MAX, TOKENS_MAX, ExpressionError

__all__ = [
    "CACHED_MAX",
    "DEPTH_MAX",
    "LENGTH_MAX",
    "STEPS_MAX",
    "TOKENS_MAX",
    "Compiler",
    "EvaluationError",
    "Expression",
    "ExpressionError",
    "compile_expression",
]
