"""Every size limit of the system.

A limit is named in the error that it causes, so that whoever meets it knows what to look for here.
"""

from typing import Final

# Values, events and contexts
MIN_INTEGER: Final = -(2**63)
MAX_INTEGER: Final = 2**63 - 1
MAX_NAME_CHARACTERS: Final = 255
MAX_STRING_CHARACTERS: Final = 8_192
MAX_ATTRIBUTES: Final = 1_024
MAX_ATTRIBUTE_NESTING: Final = 8
MAX_PAYLOAD_BYTES: Final = 4 * 1024 * 1024
MAX_SUBJECT_CHARACTERS: Final = 1_024
MAX_TOKEN_BYTES: Final = 16_384
MAX_SIGNATURE_BYTES: Final = 65_536  # of a seal: with 48 bytes for each attribute and context value

# Filters
MAX_FILTER_CHARACTERS: Final = 65_536
MAX_FILTER_NESTING: Final = 64
MAX_FILTER_PREDICATES: Final = 1_024
MAX_IN_VALUES: Final = 4_096
MAX_PATTERN_CHARACTERS: Final = 1_024
MAX_FILTER_PATTERNS: Final = 64
MAX_REGEX_MEMORY_BYTES: Final = 1024 * 1024
MAX_XPATH_NESTING: Final = 16
MAX_XPATH_STEPS: Final = 32
MAX_XPATH_CALLS: Final = 8
MAX_XML_NESTING: Final = 32
MAX_TEXT_BYTES: Final = 65_536
MAX_XML_BYTES: Final = 256 * 1024

# Policies
MAX_POLICY_CHARACTERS: Final = 65_536
MAX_POLICY_XML_BYTES: Final = 2 * 1024 * 1024
MAX_POLICY_RULES: Final = 64
MAX_POLICY_BRANCHES: Final = 64
MAX_POLICY_ELEMENTS: Final = 1_024
MAX_POLICY_ARGUMENTS: Final = 1_024
MAX_POLICY_NESTING: Final = 32

# The engine
MAX_HELD_MESSAGES: Final = 10_000
MAX_TOLD_CONFLICTS: Final = 65_536
MAX_TOLD_EVENTS: Final = 1_000
MAX_KNOWN_TRUST: Final = 65_536
MAX_COMPARED_RULES: Final = 64  # that act on one copy, for conflicts to be told

# Security
MAX_TEMPLATE_TAGS: Final = 16
MAX_SIGNED_BATCH: Final = 4_096  # events under one signature
MAX_INSTANCE_MESSAGES: Final = 2**32  # under one content key
MAX_INSTANCE_BYTES: Final = 2**36
MAX_CHECKED_TOKENS: Final = 65_536  # that are remembered as good
MAX_REFUSED_TOKENS: Final = 4_096  # that are remembered as bad
MAX_REPLAY_INSTANCES: Final = 262_144  # of publishers, whose last event is remembered
MAX_REPLAY_INSTANCES_OF_ONE: Final = 4_096
MAX_SECURE_TOPICS: Final = 65_536
MAX_SECURE_TOPICS_OF_ONE: Final = 16_384
MAX_REVOKED: Final = 1_000_000
MAX_ADVERTISED_BYTES: Final = 65_536  # of a topic or a service, at discovery nodes
MAX_RESTRICTION_NAMES: Final = 256
MAX_ADVERTISED: Final = 65_536  # topics and services that a discovery node knows
MAX_ADVERTISED_BY_ONE: Final = 4_096  # owner
MAX_FOUND_BYTES: Final = 1_048_576  # in one answer of a discovery node
DEFAULT_FOUND: Final = 10_000  # topics and centres that a client looks for at discovery nodes, page by page

# A key management centre
MAX_GRANTS: Final = 1_000_000  # of one topic
MAX_KEPT_EPOCHS: Final = 65_536  # of one topic; what was sealed under older ones cannot be opened by who comes later
MAX_GIVEN_KEYS: Final = 1_024  # in one answer
MAX_REWRAPPED: Final = 1_024  # content keys in one question
MAX_ISSUED_TOKENS: Final = 65_536  # that are remembered, to be given again
MAX_QUERIES: Final = 32  # of one entity
MAX_QUERY_CHARACTERS: Final = 256

# The overlay
MAX_BROKERS: Final = 100_000
MAX_LINKS: Final = 1_000  # of one broker
MAX_LINK_COST: Final = 1_000_000
MAX_RESIDENTS: Final = 65_536  # clients that have come from other brokers
MAX_REMEMBERED_TOPOLOGIES: Final = 64
MAX_CACHED_OVERLAPS: Final = 65_536
MAX_REMEMBERED_PASSAGES: Final = 65_536  # of events, by their ids, and of publishers, by their last numbers
MAX_UNSETTLED_PUBLICATIONS: Final = 262_144  # that a broker has passed on
MAX_REMEMBERED_MOVES: Final = 65_536  # of clients between brokers
MAX_REMEMBERED_GIVEN: Final = 131_072  # events that durable subscriptions of a broker were given

# Work that is bounded: past these the answer is the safe one (semantics: covers no, overlaps yes)
MAX_COVERING_STEPS: Final = 10_000
MAX_PATTERN_STEPS: Final = 20_000
MAX_MERGING_STEPS: Final = 100_000
MAX_MERGED_INTERVALS: Final = 512

# The index
MAX_CONJUNCTS: Final = 64
MAX_CACHED_STRINGS: Final = 65_536
MAX_CONTEXT_COLUMNS: Final = 64
MAX_NEIGHBOURHOODS: Final = 16

# Routing
MAX_BLOOM_BYTES: Final = 16_384
MAX_BLOOM_HASHES: Final = 16

# What the process remembers
MAX_CACHED_COMPARISONS: Final = 4_096
MAX_CACHED_CONJUNCTS: Final = 256
MAX_CACHED_NAMES: Final = 4_096
MAX_CACHED_PLACES: Final = 4_096
MAX_CACHED_TEMPLATES: Final = 16_384
MAX_CACHED_TEMPLATE_CHARACTERS: Final = 1_024
MAX_CACHED_PATTERNS: Final = 4_096
MAX_CACHED_BINDINGS: Final = 16_384
MAX_CACHED_CONTEXTS: Final = 16_384

# Schemas
MAX_SCHEMA_ATTRIBUTES: Final = 1_024

# The journal: no event that the model accepts is larger
MAX_RECORD_BYTES: Final = 128 * 1024 * 1024

# The wire
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
MAX_FRAME_BYTES_BEFORE_HELLO: Final = 4_096

# Live brokers
MAX_WATCHED_PARTIES: Final = 16_384  # addresses, and identities, whose refused attempts are counted

# The client
MAX_REMEMBERED_NOTIFICATIONS: Final = 65_536  # by the ids of their events, so that none is given twice

# The hub: what one process keeps in memory
DEFAULT_INBOX_NOTIFICATIONS: Final = 10_000
MAX_INBOX_NOTIFICATIONS: Final = 1_000_000
MAX_REMEMBERED_EVENTS: Final = 16_384
MAX_REMEMBERED_PUBLISHERS: Final = 262_144  # whose last number is known
MAX_STORED_MESSAGES: Final = 4_096
MAX_LOG_LINES: Final = 1_000
