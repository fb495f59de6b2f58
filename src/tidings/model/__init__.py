"""The value types that all other packages share: events, subscriptions, advertisements, filters, schemas and errors.

All of them are frozen. This package imports no other package of Tidings.
"""

from tidings.model.advertisement import Advertisement as Advertisement
from tidings.model.errors import FilterError as FilterError
from tidings.model.errors import InvalidValueError as InvalidValueError
from tidings.model.errors import PolicyError as PolicyError
from tidings.model.errors import SchemaError as SchemaError
from tidings.model.errors import TidingsError as TidingsError
from tidings.model.event import Event as Event
from tidings.model.filter import ContextFilterValue as ContextFilterValue
from tidings.model.filter import FilterValue as FilterValue
from tidings.model.identity import uuid7 as uuid7
from tidings.model.notification import Notification as Notification
from tidings.model.schema import AttributeFilter as AttributeFilter
from tidings.model.schema import Schema as Schema
from tidings.model.subjects import Subjects as Subjects
from tidings.model.subscription import Subscription as Subscription
from tidings.model.values import Attributes as Attributes
from tidings.model.values import Context as Context
from tidings.model.values import Value as Value
