//! Remembering requests, and forgetting the oldest of them.

use berth_domain::refusal::Refusal;

use crate::command::RequestKey;
use crate::reply::Reply;
use crate::request::{REMEMBERED_MAX, Receipt, Request, RequestName, is_believable, made_at};
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn remember(
        &mut self,
        principal: &str,
        key: &RequestKey,
        outcome: &Result<Reply, Refusal>,
    ) {
        self.state.header.requests += 1;
        self.put_request(Request {
            name: RequestName::new(principal, key).into(),
            sequence: self.state.header.requests,
            payload_hash: key.payload_hash,
            receipt: Receipt::of(outcome),
        });
        while self.state.requests.len() > REMEMBERED_MAX {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, name)) = self.state.index.remembered.get_min().cloned() else {
            return;
        };
        let now = self.now();
        if let Some(made_at) = made_at(name.id)
            && is_believable(made_at, now)
        {
            let header = &mut self.state.header;
            header.forgotten = header.forgotten.max(made_at);
        }
        self.remove_request(&name);
    }
}
