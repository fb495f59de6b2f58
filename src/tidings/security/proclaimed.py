"""What is proclaimed over the overlay: events that tell everybody of secure topics. What their payload says is signed
by who may say it, so anybody may publish them."""

KIND = "security"  # the attribute that says what an event proclaims
REVOCATIONS, NOTICE, RECORD = "revocations", "notice", "record"  # its values
TOPIC = "topic"  # an attribute of notices and records: the id of the topic, in hexadecimal
EVERYTHING = f"{KIND} IN ('{REVOCATIONS}', '{NOTICE}', '{RECORD}')"  # as a filter
