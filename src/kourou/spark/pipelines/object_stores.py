"""Users give one URL, and the libraries need two forms: Arrow and delta-rs read `s3://`, Spark reads `s3a://`.

A user may write either. Arrow's parameters in the query of a URL (`endpoint_override`, `scheme`, `region`) or in the
environment (`AWS_ENDPOINT_URL`, `AWS_REGION`) are converted to settings of Spark and delta-rs, for this bucket alone.
All three libraries read credentials from the environment.
"""

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from kourou.spark.errors import OptionError

S3: Final = "s3"
SPARK_S3: Final = "s3a"
_S3_SCHEMES: Final = (S3, SPARK_S3, "s3n")


def is_s3(url: str) -> bool:
    return url.partition("://")[0].lower() in _S3_SCHEMES and "://" in url


def for_arrow(url: str) -> str:
    """The URL for Arrow and delta-rs. Raises OptionError for a URL with credentials in it."""
    if not is_s3(url):
        return url
    parts = _split(url)
    return parts._replace(scheme=S3).geturl()


def for_spark(url: str) -> str:
    """The URL for Spark: with its own scheme, and without a query, which Spark would treat as a part of the path."""
    if not is_s3(url):
        return url
    return _split(url)._replace(scheme=SPARK_S3, query="").geturl().rstrip("/")


def below(url: str, path: str) -> str:
    """The URL for Spark of a file or folder in a place."""
    return f"{for_spark(url).rstrip('/')}/{path}"


def spark_settings(url: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings with which Spark finds the same place as Arrow; none for other places than S3."""
    if not is_s3(url):
        return {}
    bucket = _split(url).netloc
    endpoint, region = _where(url, environment)
    found: dict[str, str] = {}
    if endpoint is not None:
        found["endpoint"] = endpoint
        found["path.style.access"] = "true"
        found["connection.ssl.enabled"] = "true" if endpoint.startswith("https") else "false"
    if region is not None:
        found["endpoint.region"] = region
    return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in found.items()}


def delta_settings(url: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The same for delta-rs."""
    if not is_s3(url):
        return {}
    endpoint, region = _where(url, environment)
    found = {} if endpoint is None else {"AWS_ENDPOINT_URL": endpoint}
    if endpoint is not None and not endpoint.startswith("https"):
        found["AWS_ALLOW_HTTP"] = "true"
    return found if region is None else {**found, "AWS_REGION": region}


def without_query(url: str) -> str:
    """The URL for delta-rs, which gets its settings separately."""
    return _split(url)._replace(query="").geturl() if is_s3(url) else url


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise OptionError(
            "do not put credentials into the URL of a lake, which is displayed and stored: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )
    return parts


def _where(url: str, environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Endpoint, with its scheme, and region; None if not given."""
    given = {name: values[-1] for name, values in parse_qs(urlsplit(url).query).items()}
    endpoint = given.get("endpoint_override")
    if endpoint is not None and "://" not in endpoint:
        endpoint = f"{given.get('scheme', 'https')}://{endpoint}"
    endpoint = endpoint or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or None
    region = given.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or None
    return endpoint, region or ("us-east-1" if endpoint else None)


MISSING: Final = ("S3AFileSystem not found", 'No FileSystem for scheme "s3a"')


def missing_jars(error: BaseException, hadoop: str | None) -> OptionError | None:
    """The remedy if this Spark can't read S3; None for other errors."""
    if not any(text in str(error) for text in MISSING):
        return None
    package = f"org.apache.hadoop:hadoop-aws:{hadoop or 'VERSION-OF-HADOOP'}"
    return OptionError(
        f"this Spark can't read s3://: it needs the package hadoop-aws, --conf spark.jars.packages={package} "
        "(for a session: before it is started)"
    )
