"""The names of Java that PySpark asks for again and again, remembered for the life of a session.

PySpark reaches a method of Java by two questions before each call: what is this name, and what is that name in it. For
a name without a package, Java looks for a class in every JAR, once per imported package. A small batch asks 980 of its
4,400 questions so, which is a tenth of the time that Java works for it (ADR 0005).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FUNCTIONS = ("broadcast", "coalesce", "col", "expr", "lit", "not", "struct", "when")
_NAMES = {
    "PythonSQLUtils": ("readArrowStreamFromFile", "toDataFrame"),
    "PythonUtils": ("toSeq",),
    "functions": _FUNCTIONS,
    "org.apache.spark.sql.classic.SparkSession": ("getActiveSession", "setActiveSession"),
    "org.apache.spark.sql.functions": _FUNCTIONS,
}
"""Classes and methods of Java, as PySpark calls them."""


def remember_names(session: SparkSession) -> None:
    """Keeps classes and methods where PySpark looks for them first; a name that this PySpark has not is left out.

    A session of Spark Connect has no Java of its own, and nothing happens.
    """
    java = getattr(session, "_jvm", None)
    for name, methods in _NAMES.items():
        if java is None or name in vars(java):
            continue
        java_class = getattr(java, name)
        if isinstance(java_class, JavaClass):
            for method in methods:
                try:
                    setattr(java_class, method, getattr(java_class, method))
                except Py4JError:  # of another version
                    continue
            setattr(java, name, java_class)
