"""Gives the tests here the one Spark session of the process."""

from spark_session import spark

__all__ = ["spark"]
