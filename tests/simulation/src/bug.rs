//! Bugs that can be planted, to see that the simulation finds them. Each is in the driver, never
//! in the product: the driver lies to a core in just the way in which a wrong server would.

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// Members are told that their log is durable before it is.
    AnswerBeforeSync,
    /// While a migration is settled, the destination is not asked: it is taken for granted that it
    /// has no guest, so that its claim is released while the guest may be arriving.
    ReleaseEarly,
    /// Neither the scheduler nor the agents look at epochs, so that a conductor that lost its
    /// lease goes on with its steps.
    StaleEpoch,
    /// A member that forwards a write takes an attempt without a response for one that did nothing.
    ForgetDoubt,
    /// A repeated request is answered with the provider as it is by then.
    AnswerAsItIs,
    /// A member is removed whether or not the others answer.
    RemoveBelowQuorum,
    /// A member starts although its witness shows that its log lost what was synchronised.
    IgnoreWitness,
    /// A member does not compare the content of its log with the leader's.
    IgnoreContent,
    /// An agent carries out calls of the schedulers that were lost, as if those that recover had made them.
    CarryOutLostCalls,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::AnswerBeforeSync,
        Self::ReleaseEarly,
        Self::StaleEpoch,
        Self::ForgetDoubt,
        Self::AnswerAsItIs,
        Self::RemoveBelowQuorum,
        Self::IgnoreWitness,
        Self::IgnoreContent,
        Self::CarryOutLostCalls,
    ];
}

impl std::str::FromStr for Bug {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "answer-before-sync" => Ok(Self::AnswerBeforeSync),
            "release-early" => Ok(Self::ReleaseEarly),
            "stale-epoch" => Ok(Self::StaleEpoch),
            "forget-doubt" => Ok(Self::ForgetDoubt),
            "answer-as-it-is" => Ok(Self::AnswerAsItIs),
            "remove-below-quorum" => Ok(Self::RemoveBelowQuorum),
            "ignore-witness" => Ok(Self::IgnoreWitness),
            "ignore-content" => Ok(Self::IgnoreContent),
            "carry-out-lost-calls" => Ok(Self::CarryOutLostCalls),
            other => Err(format!(
                "{other:?} is no bug; there are answer-before-sync, release-early, stale-epoch, \
                 forget-doubt, answer-as-it-is, remove-below-quorum, ignore-witness, \
                 ignore-content, carry-out-lost-calls"
            )),
        }
    }
}
