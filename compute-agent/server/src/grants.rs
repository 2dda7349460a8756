//! Whether the scheduler granted a call, by the keys that the responses to heartbeats carry.
//!
//! Not here: what a grant allows (`berth_domain::grant`), and calls that are late (`core::fences`).
//!
//! Invariant: a call is checked before anything of it has an effect, without asking anyone. Once a
//! scheduler required grants, no call passes without one, also after a restart.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use berth_domain::agent::Fence;
use berth_domain::grant::{
    self, ConsoleGrant, Grant, ImageGrant, KEYS_MAX, Presented, PresentedConsole, PresentedImage,
};
use berth_domain::id::{ClusterId, TimeMs, VmUid};
use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_proto::convert::{Invalid, field};
use berth_proto::operation::v1;
use berth_tls::{Identity, Role};
use bytes::Bytes;
use prost::Message as _;
use ring::signature::{ED25519, UnparsedPublicKey};

/// The name of the file in the data directory.
const FILE: &str = "grant-keys";

/// A key that grants are checked with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    number: u32,
    public: Bytes,
    retired_at: Option<TimeMs>,
}

/// What grants are checked with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Terms {
    cluster: ClusterId,
    keys: Vec<Key>,
}

/// What is known of the cluster's grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Known {
    /// No scheduler responded yet.
    #[default]
    Nothing,
    /// The cluster has none yet.
    NotRequired,
    /// Every call needs one.
    Required(Terms),
}

/// Checks the grants of calls. Cheap to clone; clones share what is known.
#[derive(Clone, Debug)]
pub(crate) struct Grants {
    known: Arc<RwLock<Known>>,
    /// The time of the cluster, when a response stated it.
    time: Arc<RwLock<Option<(TimeMs, Instant)>>>,
    /// Held while something is learnt and stored. Calls are checked meanwhile.
    learning: Arc<Mutex<()>>,
    host: HostName,
    /// Where what is known is stored over restarts.
    directory: Option<PathBuf>,
    /// Whether callers have names, so that calls before the first response are refused.
    is_certified: bool,
}

impl Grants {
    /// Returns what an earlier run has stored, or nothing.
    pub(crate) fn open(host: HostName, directory: Option<PathBuf>, is_certified: bool) -> Self {
        let stored = directory.as_deref().map(load).transpose();
        let known = stored.unwrap_or_else(|error| {
            tracing::warn!(%error, "stored grant keys are not used");
            None
        });
        Self {
            known: Arc::new(RwLock::new(known.flatten().unwrap_or_default())),
            time: Arc::default(),
            learning: Arc::default(),
            host,
            directory,
            is_certified,
        }
    }

    /// Takes what a response of the scheduler states; absent in one of a scheduler that has no grants.
    pub(crate) fn learn(&self, mut terms: Option<v1::GrantTerms>) {
        let time = terms.as_mut().and_then(|terms| terms.time.take());
        let stored = terms.clone();
        let learnt = match terms.map(read).transpose() {
            Ok(learnt) => learnt.unwrap_or(Known::NotRequired),
            Err(invalid) => {
                tracing::warn!(%invalid, "grant keys of the scheduler cannot be read");
                return;
            }
        };
        if let Ok(Some(time)) = field::optional_time(time, "time") {
            let stated = Some((time, Instant::now()));
            *self.time.write().unwrap_or_else(PoisonError::into_inner) = stated;
        }
        let _turn = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_news(&learnt) {
            return;
        }
        if let Known::Required(terms) = &learnt {
            let keys: Vec<u32> = terms.keys.iter().map(|key| key.number).collect();
            tracing::info!(?keys, "calls require grants");
            if let (Some(directory), Some(stored)) = (&self.directory, stored)
                && let Err(error) = store(directory, &stored)
            {
                tracing::warn!(%error, "grant keys cannot be stored");
            }
        }
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = learnt;
    }

    fn is_news(&self, learnt: &Known) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        // It never falls: a cluster version does not.
        let falls = matches!(*known, Known::Required(_)) && *learnt == Known::NotRequired;
        *known != *learnt && !falls
    }

    /// Returns the time of the cluster, in which grants are dated. Until a response has stated it, this
    /// is `wall`, the clock of the host.
    ///
    /// A scheduler that started with a clock that was ahead takes the time of the cluster with it for
    /// hours after that clock is right again, and a host may have a wrong one of its own.
    fn now(&self, wall: TimeMs) -> TimeMs {
        let stated = *self.time.read().unwrap_or_else(PoisonError::into_inner);
        let elapsed_ms = |at: Instant| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let on = |(time, at): (TimeMs, Instant)| TimeMs(time.0.saturating_add(elapsed_ms(at)));
        stated.map_or(wall, on)
    }

    /// Checks that a conductor's call is granted; `caller` is absent where callers have no names.
    ///
    /// # Errors
    ///
    /// Why it is not.
    pub(crate) fn check(
        &self,
        fence: &Fence,
        signed: Option<&v1::SignedGrant>,
        caller: Option<&Identity>,
        wall: TimeMs,
    ) -> Result<(), Refusal> {
        let Some(grant) = self.granted(fence, signed, wall)? else {
            return Ok(());
        };
        grant.check_conductor(caller.map(|caller| caller.name.as_str()))
    }

    /// Checks that the agent of another host may read the disks of a guest here.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub(crate) fn check_reader(
        &self,
        fence: &Fence,
        signed: Option<&v1::SignedGrant>,
        caller: Option<&Identity>,
        wall: TimeMs,
    ) -> Result<(), Refusal> {
        let Some(grant) = self.granted(fence, signed, wall)? else {
            return Ok(());
        };
        let is_agent_of = caller.map(|caller| {
            move |host: &HostName| caller.role == Role::Agent && caller.is_agent_of(host.as_str())
        });
        let is_agent_of = is_agent_of
            .as_ref()
            .map(|is| is as &dyn Fn(&HostName) -> bool);
        grant.check_reader(&self.host, is_agent_of)
    }

    /// Checks that the caller may type on the console of a guest, and returns the user for whom it does;
    /// nothing where no grant is required.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub(crate) fn check_console(
        &self,
        vm: VmUid,
        signed: Option<&v1::SignedGrant>,
        caller: Option<&Identity>,
        wall: TimeMs,
    ) -> Result<Option<String>, Refusal> {
        let Some(signature) = self.signature(signed, ConsoleGrant::PREFIX)? else {
            return Ok(None);
        };
        let granted: ConsoleGrant = signature.read::<v1::ConsoleGrant, _>()?;
        granted.check(&PresentedConsole {
            cluster: signature.cluster,
            vm,
            caller: caller.map(|caller| caller.name.as_str()),
            now: self.now(wall),
            key_retired_at: signature.key_retired_at,
        })?;
        Ok(Some(granted.user))
    }

    /// Checks that a caller may have an image taken, fetched or sent, and returns what is granted.
    /// `conductor` is absent where callers have no names, and where another agent calls.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub(crate) fn check_image(
        &self,
        signed: Option<&v1::SignedGrant>,
        conductor: Option<&str>,
        wall: TimeMs,
    ) -> Result<ImageGrant, Refusal> {
        let Some(signature) = self.signature(signed, ImageGrant::PREFIX)? else {
            // What is in an image is not known without one.
            let message = "this agent does not know the keys of the cluster yet";
            return Err(Refusal::new(Code::Unavailable, "AGENT_STARTING", message));
        };
        let granted: ImageGrant = signature.read::<v1::ImageGrant, _>()?;
        granted.check(&PresentedImage {
            cluster: signature.cluster,
            conductor,
            now: self.now(wall),
            key_retired_at: signature.key_retired_at,
        })?;
        Ok(granted)
    }

    /// Returns the grant of a call, which is valid here; nothing where none is required.
    fn granted(
        &self,
        fence: &Fence,
        signed: Option<&v1::SignedGrant>,
        wall: TimeMs,
    ) -> Result<Option<Grant>, Refusal> {
        let Some(signature) = self.signature(signed, b"")? else {
            return Ok(None);
        };
        let granted: Grant = signature.read::<v1::Grant, _>()?;
        granted.check(&Presented {
            cluster: signature.cluster,
            host: &self.host,
            fence,
            now: self.now(wall),
            key_retired_at: signature.key_retired_at,
        })?;
        Ok(Some(granted))
    }

    /// Checks the signature over `prefix` and the encoded grant; nothing where no grant is required.
    fn signature(
        &self,
        signed: Option<&v1::SignedGrant>,
        prefix: &[u8],
    ) -> Result<Option<Signature>, Refusal> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let terms = match &*known {
            Known::NotRequired => return Ok(None),
            Known::Nothing if !self.is_certified => return Ok(None),
            // No conductor knows this run of the agent before the scheduler does.
            Known::Nothing => {
                let message = "this agent has not registered yet, so it cannot check grants";
                return Err(Refusal::new(Code::Unavailable, "AGENT_STARTING", message));
            }
            Known::Required(terms) => terms,
        };
        let signed = signed.ok_or_else(grant::missing)?;
        let key = terms.keys.iter().find(|key| key.number == signed.key);
        let key = key.ok_or_else(|| {
            grant::invalid("its key is not one of the cluster")
                .with_hint("renew the lease of the operation, and repeat the call")
        })?;
        UnparsedPublicKey::new(&ED25519, &key.public)
            .verify(&[prefix, &signed.grant].concat(), &signed.signature)
            .map_err(|_| grant::invalid("its signature does not match"))?;
        Ok(Some(Signature {
            grant: signed.grant.clone(),
            cluster: terms.cluster,
            key_retired_at: key.retired_at,
        }))
    }
}

/// A grant that a scheduler of the cluster signed, not read yet.
struct Signature {
    grant: Bytes,
    cluster: ClusterId,
    key_retired_at: Option<TimeMs>,
}

impl Signature {
    /// Reads the grant, which is sent as `W`.
    fn read<W, G>(&self) -> Result<G, Refusal>
    where
        W: prost::Message + Default,
        G: TryFrom<W, Error = Invalid>,
    {
        let wire = W::decode(self.grant.clone());
        let wire = wire.map_err(|_| grant::invalid("it cannot be read"))?;
        G::try_from(wire).map_err(|why| grant::invalid(&why.to_string()))
    }
}

fn read(wire: v1::GrantTerms) -> Result<Known, Invalid> {
    if !wire.required {
        return Ok(Known::NotRequired);
    }
    let key = |wire: v1::GrantKey| {
        Ok(Key {
            number: wire.number,
            public: wire.public_key,
            retired_at: field::optional_time(wire.retire_time, "retire_time")?,
        })
    };
    Ok(Known::Required(Terms {
        cluster: field::uuid(&wire.cluster_id, "cluster_id")?,
        keys: field::each_by(wire.keys, "keys", KEYS_MAX, key)?,
    }))
}

/// Reads what is stored. What cannot be read is not used: then calls wait for the first response.
fn load(directory: &Path) -> io::Result<Option<Known>> {
    let bytes = match fs::read(directory.join(FILE)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let terms = v1::GrantTerms::decode(&*bytes).map_err(|error| invalid(error.to_string()))?;
    let known = read(terms).map_err(|error| invalid(error.to_string()))?;
    Ok(Some(known).filter(|known| matches!(known, Known::Required(_))))
}

fn store(directory: &Path, terms: &v1::GrantTerms) -> io::Result<()> {
    berth_files::make_private(directory)?;
    berth_files::replace(&directory.join(FILE), &terms.encode_to_vec())
}

#[cfg(test)]
mod tests;
