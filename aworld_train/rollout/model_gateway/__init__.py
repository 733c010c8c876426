"""The model as agents see it: one HTTP server that speaks three dialects and hands each request to a conversation.

It knows how programs ask for an answer and nothing of how one is sampled: that is a
:class:`~aworld_train.rollout.messages.Conversation`, which a rollout brings along.
"""

from aworld_train.rollout.model_gateway.app import ModelGateway, ModelGatewaySession, model_gateway

__all__ = ["ModelGateway", "ModelGatewaySession", "model_gateway"]
