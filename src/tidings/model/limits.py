"""Every size limit of the system, in one place. Error messages name the limit that caused them.

A comment after a limit says what the number counts where its name does not.
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
MAX_SIGNATURE_BYTES: Final = 65_536  # includes a seal: 48 bytes for each attribute and context value

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
MAX_DEFERRED_MESSAGES: Final = 10_000
MAX_REPORTED_CONFLICTS: Final = 65_536
MAX_META_EVENTS_PER_MESSAGE: Final = 1_000
MAX_KNOWN_TRUST: Final = 65_536
MAX_COMPARED_RULES: Final = 64  # rules that act on one copy of a message and are checked for conflicts

# Security
MAX_TEMPLATE_TAGS: Final = 16
MAX_SIGNED_BATCH: Final = 4_096  # events under one signature
MAX_INSTANCE_MESSAGES: Final = 2**32  # messages sealed under one content key
MAX_INSTANCE_BYTES: Final = 2**36
MAX_CHECKED_TOKENS: Final = 65_536  # cached tokens that passed the check
MAX_REFUSED_TOKENS: Final = 4_096  # cached tokens that failed the check
MAX_REPLAY_INSTANCES: Final = 262_144  # publisher instances of which the last event is remembered
MAX_REPLAY_INSTANCES_OF_ONE: Final = 4_096
MAX_SECURE_TOPICS: Final = 65_536
MAX_SECURE_TOPICS_OF_ONE: Final = 16_384
MAX_REVOKED: Final = 1_000_000
MAX_ADVERTISED_BYTES: Final = 65_536  # size of one topic or service at a discovery node
MAX_RESTRICTION_NAMES: Final = 256
MAX_ADVERTISED: Final = 65_536  # topics and services at one discovery node
MAX_ADVERTISED_BY_ONE: Final = 4_096  # topics and services of one owner
MAX_FOUND_BYTES: Final = 1_048_576  # size of one answer of a discovery node
DEFAULT_FOUND: Final = 10_000  # topics and key management centres that a client requests, page by page

# A key management centre
MAX_GRANTS: Final = 1_000_000  # grants for one topic
MAX_KEPT_EPOCHS: Final = 65_536  # epochs of one topic; members that join later cannot open events of older ones
MAX_GIVEN_KEYS: Final = 1_024  # keys in one answer
MAX_REWRAPPED: Final = 1_024  # content keys in one request
MAX_ISSUED_TOKENS: Final = 65_536  # cached tokens, so that a repeated request gets the same token
MAX_QUERIES: Final = 32  # queries in the query set of one entity
MAX_QUERY_CHARACTERS: Final = 256

# The overlay
MAX_BROKERS: Final = 100_000
MAX_LINKS: Final = 1_000  # links of one broker
MAX_LINK_COST: Final = 1_000_000
MAX_RESIDENTS: Final = 65_536  # clients that moved here from other brokers
MAX_REMEMBERED_TOPOLOGIES: Final = 64
MAX_CACHED_OVERLAPS: Final = 65_536
MAX_SEEN_EVENTS: Final = 65_536  # event ids, and publishers with their last sequence number
MAX_UNSETTLED_PUBLICATIONS: Final = 262_144  # publications that a broker has forwarded and that are not settled
MAX_REMEMBERED_MOVES: Final = 65_536  # moves of clients between brokers
MAX_REMEMBERED_DELIVERIES: Final = 131_072  # events recently delivered to a broker's durable subscriptions

# Bounded computations. Beyond these limits the answer is the conservative one: covers says no, overlaps says yes.
MAX_COVERING_STEPS: Final = 10_000
MAX_PATTERN_STEPS: Final = 20_000
MAX_MERGING_STEPS: Final = 100_000
MAX_MERGED_INTERVALS: Final = 512

# The index
MAX_CONJUNCTS: Final = 64
MAX_CACHED_STRINGS: Final = 65_536
MAX_CONTEXT_COLUMNS: Final = 64
MAX_SPATIAL_GROUPS: Final = 16

# Routing
MAX_BLOOM_BYTES: Final = 16_384
MAX_BLOOM_HASHES: Final = 16

# Caches of the process
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

# The journal: every event that the model accepts fits into one record
MAX_RECORD_BYTES: Final = 128 * 1024 * 1024

# The wire
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
MAX_FRAME_BYTES_BEFORE_HELLO: Final = 4_096

# Live brokers
MAX_WATCHED_PARTIES: Final = 16_384  # addresses and identities with counted failed attempts to connect

# The client
MAX_REMEMBERED_NOTIFICATIONS: Final = 65_536  # event ids, to drop duplicates

# The hub: state in the memory of one process
DEFAULT_INBOX_NOTIFICATIONS: Final = 10_000
MAX_INBOX_NOTIFICATIONS: Final = 1_000_000
MAX_REMEMBERED_EVENTS: Final = 16_384
MAX_REMEMBERED_PUBLISHERS: Final = 262_144  # publishers with their last sequence number
MAX_STORED_MESSAGES: Final = 4_096
MAX_LOG_LINES: Final = 1_000
