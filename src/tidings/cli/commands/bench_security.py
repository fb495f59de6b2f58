"""The subcommands of `tidings bench` that measure sealing, key management, trust groups and signatures."""

from typing import Annotated

import typer

from tidings.cli.options import AsJson, CommandGroup

secure = CommandGroup()


@secure.command(name="sealing", short_help="Seal, check and open events, by cipher and size.")
def bench_sealing(
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", min=1, max=1_000_000, help="Bytes of payloads: 1 to 65,536.", metavar="BYTES"),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many events of each size.", metavar="NUMBER")] = 512,
    as_json: AsJson = False,
) -> None:
    """Sealing, checking and opening events, alone and in batches with one signature, by cipher and size.

    Example: tidings bench sealing --size 1024 --count 100
    """
    from benchmarks.security import sealing

    from tidings.cli.measurement import report

    report(sealing.measure(sizes or sealing.SIZES, count), as_json)


@secure.command(name="keys", short_help="A key management centre: requests and rotations.")
def bench_keys(
    members: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many members a rotation is for.", metavar="NUMBER")
    ] = 1_000,
    requests: Annotated[
        int, typer.Option(min=1, help="How many requests one after the other.", metavar="NUMBER")
    ] = 200,
    as_json: AsJson = False,
) -> None:
    """A key management centre: requests for token and keys, and a rotation, in process and over a broker.

    Example: tidings bench keys --members 100 --requests 50
    """
    from benchmarks.security import keys

    from tidings.cli.measurement import report

    report(keys.measure(members, requests), as_json)


@secure.command(name="trust", short_help="Publications that need proofs of trust groups.")
def bench_trust(
    count: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many publications of each kind.", metavar="NUMBER")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Publications between two brokers, of which one has to prove that it belongs to 0, 1, 3 and 5 trust groups.

    Example: tidings bench trust --count 20
    """
    from benchmarks.security import trust

    from tidings.cli.measurement import report

    report(trust.measure(count), as_json)


@secure.command(name="sealed", short_help="Sealed beside plain delivery through one broker.")
def bench_sealed(
    bits: Annotated[
        list[int] | None,
        typer.Option("--bits", min=128, max=256, help="Bits of keys: 128, 192 and 256.", metavar="NUMBER"),
    ] = None,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", min=1, max=1_000_000, help="Bytes of payloads: 1, 2, 4 to 65,536.", metavar="BYTES"),
    ] = None,
    count: Annotated[
        int, typer.Option(min=2, help="How many events of each size, plain and sealed.", metavar="NUMBER")
    ] = 100,
    interval: Annotated[
        float, typer.Option(min=0.0, help="Milliseconds between two events.", metavar="MILLISECONDS")
    ] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Sealed against plain delivery through one broker process: end to end, whose share it is, and the spacing.

    Example: tidings bench sealed --bits 256 --size 1024 --size 65536 --count 50
    """
    from benchmarks.security import sealed

    from tidings.cli.measurement import report

    if unknown := set(bits or ()) - sealed.SUITES.keys():
        raise typer.BadParameter(
            f"there are no keys of {unknown.pop()} bits; there are {', '.join(map(str, sealed.SUITES))}"
        )
    pace = sealed.Pace(count, interval / 1_000)
    report(sealed.measure(bits or list(sealed.SUITES), sizes or sealed.SIZES, pace), as_json)


@secure.command(name="spark-security", short_help="Check signed events on Spark (needs Java 17).")
def bench_spark_security(
    events: Annotated[
        int, typer.Option(min=1, help="How many events, in batches; fewer with a signature each.", metavar="NUMBER")
    ] = 200_000,
    cores: Annotated[int, typer.Option(min=1, help="How many cores Spark has.", metavar="NUMBER")] = 1,
    as_json: AsJson = False,
) -> None:
    """Checking signed events on Spark, with a signature each and in signed batches (needs Java 17).

    Example: tidings bench spark-security --events 20000
    """
    from benchmarks.spark import spark_security

    from tidings.cli.measurement import report

    report(spark_security.measure(events, cores), as_json)
