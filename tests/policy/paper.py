"""The policies that the paper prints, as they stand there, line breaks included.

Two things are not the language's but the page's, and are mended: the typeset quotes around 'Broker load' in Fig. 7, and
the attribute lists `(a, ... ,n)` in Fig. 16, which are written out. What Sec. 5 prints without the statement around it
stands in `FRAGMENTS`.
"""

FIG_4 = """PolicyStatement {
On(Forward,Publication) {

@broker: Egress
If {} Then {TrimAttributes()}

} }
"""

FIG_6 = """PolicyStatement {

On(Forward,Publication) {
@broker: Ingress,Egress,Routing

If {}
Then {AugmentBrokerHostInfo(),

AugmentBrokerLoadIndex(),
AugmentProcessingTime()}

} }
"""

FIG_7 = """PolicyStatement {

On(Insert,Subscription) {
@broker: Ingress

If {MessageSizeIndex() > 0.8
&& BrokerLoadIndex() > 0.75}

Then {UninsertMessage(),
Publish("[class,DropMessage]

,[cause,'Broker load']
,[message,$Message]")}

}

On(Forward,Subscription) {
@broker: Ingress

If {MessageSizeIndex() > 0.8
&& BrokerLoadIndex() > 0.75}

Then {BlockMessage()}
} }
"""

FIG_8 = """PolicyStatement {

On(Forward,Advertisement) {
@broker: Ingress,Routing

If {} Then {BlockMessage()}
}

On(Forward,Subscription) {
@broker: Ingress,Routing

If {} Then {FloodMessage()}
} }
"""

FIG_13 = """PolicyStatement {
On(Forward,Advertisement) {

@broker: Ingress,Routing

If {AuthenticateReceiver(
TrustGroup1)} Then {}

Elseif {AuthenticateReceiver(
TrustGroup2)} Then {}

Elseif {} Then {BlockMessage()}
} }
"""

FIG_16 = """PolicyStatement {

On(Forward,Advertisement) {
@broker: Ingress,Routing

If {AuthenticateReceiver(Restricted)}
Then {}

Elseif {AuthenticateReceiver(Controlled)}
Then {RemoveAttributes(a, m ,n)}

Elseif {} Then {BlockMessage()}
}
On(Forward,Subscription) {

@broker: Ingress

If {AuthenticateSender(AuthorizedSubscribers)}
Then {}

Elseif {}
Then {Publish("[class,UnauthorizedSubscribe],

[message,$Message]")}
}

On(Forward,Publication) {
@broker: Routing (Ingress)
@attach: Always // Routing only

If {AuthenticateReceiver(Restricted)} Then {}
Elseif {AuthenticateReceiver(Controlled)}
Then {RemoveAttributes(a, m ,n)}
Elseif {} Then {BlockMessage()} } }
"""

FIG_22 = """PolicyStatement {

On(Forward,Publication) {
@broker: Routing

If {StrictMatch()}
Then {BlockMessage()}

} }
"""

FIGURES = {4: FIG_4, 6: FIG_6, 7: FIG_7, 8: FIG_8, 13: FIG_13, 16: FIG_16, 22: FIG_22}

FRAGMENTS = {
    "stacked": "If {} Then {TrimAttributes(), ToXML()}",
    "without If": "Then {TrimAttributes(), ToXML()}",
    "proxy": """If {AuthenticateReceiver(Domain1)} Then {ToFormat1()}

Elseif {AuthenticateReceiver(Domain2)} Then {ToFormat2()}""",
    "both groups": """If {AuthenticateReceiver(TrustGroup1)

&& AuthenticateReceiver(TrustGroup2)} Then {}""",
    "the first of Sec. 3.3": "Then {AppendPrevHop()}",
    "the second of Sec. 3.3": "Then {RemoveAttributes(d2, d3, dn)}",
}
