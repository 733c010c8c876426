"""The model gateway: an HTTP server that reads three dialects and passes each request to a conversation.

It knows the dialects and nothing of sampling; each rollout brings its
:class:`~aworld_train.rollout.messages.Conversation`, which samples the answers.
"""

from aworld_train.rollout.model_gateway.app import ModelGateway, ModelGatewaySession, model_gateway

__all__ = ["ModelGateway", "ModelGatewaySession", "model_gateway"]
