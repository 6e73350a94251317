"""Nothing on a broker any more, for the next test that shall find one as new."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from tests.servers.support.wait_until import wait_until

SECONDS = 90.0


def remove_all(address: str) -> None:
    """Remove topics and groups; a group that still has a member stays."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def topics() -> list[str]:
        return [
            name for name in admin.list_topics(timeout=SECONDS).topics if not name.startswith("__")
        ]

    if there := topics():
        for future in admin.delete_topics(there).values():
            future.exception(SECONDS)
        wait_until(lambda: not topics(), SECONDS, why=lambda: f"topics are still there: {topics()}")
    groups = [group.group_id for group in admin.list_consumer_groups().result(SECONDS).valid]
    if groups:
        for future in admin.delete_consumer_groups(groups).values():
            future.exception(SECONDS)
