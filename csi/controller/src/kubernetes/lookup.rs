//! Claims and classes by name, remembered for a moment.
//!
//! A scheduler calls `filter` and right after it `prioritize` for the same pod, and pods of one kind
//! come in crowds. What is remembered is too young to matter: a claim that was bound a second ago
//! counts once more, and the pod is tried again.
//!
//! Invariant: what is remembered is bounded in age and in number. That something is not there is
//! not remembered: a pod and its claim are often made at the same time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::api::{Api, Error};
use super::object::{Claim, Class, is_name};

/// For how long a claim is remembered.
const CLAIM_AGE_MAX: Duration = Duration::from_secs(1);
/// For how long classes are remembered.
const CLASS_AGE_MAX: Duration = Duration::from_secs(10);
/// How many of each are remembered.
const REMEMBERED_MAX: usize = 2_000;

/// Finds claims and classes.
#[derive(Debug)]
pub struct Lookup {
    api: Api,
    claims: Mutex<Memory<(String, String), Claim>>,
    classes: Mutex<Memory<String, Class>>,
    /// When all classes were read last.
    all: Mutex<Option<(Instant, Option<Arc<Class>>)>>,
}

/// Values by key, each with the time when it was read.
type Memory<K, V> = BTreeMap<K, (Instant, Arc<V>)>;

impl Lookup {
    /// Returns a lookup that remembers nothing yet.
    #[must_use]
    pub fn new(api: Api) -> Self {
        Self {
            api,
            claims: Mutex::default(),
            classes: Mutex::default(),
            all: Mutex::default(),
        }
    }

    /// Returns a claim, if there is such.
    ///
    /// # Errors
    ///
    /// When the API server does not answer.
    pub async fn claim(&self, namespace: &str, name: &str) -> Result<Option<Arc<Claim>>, Error> {
        if !is_name(namespace) || !is_name(name) {
            return Ok(None);
        }
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(claim) = recall(&lock(&self.claims), &key, within(CLAIM_AGE_MAX)) {
            return Ok(Some(claim));
        }
        let found = self.api.claim(namespace, name).await?.map(Arc::new);
        if let Some(claim) = &found {
            remember(
                &mut lock(&self.claims),
                key,
                claim.clone(),
                within(CLAIM_AGE_MAX),
            );
        }
        Ok(found)
    }

    /// Returns a class, if there is such.
    ///
    /// # Errors
    ///
    /// When the API server does not answer.
    pub async fn class(&self, name: &str) -> Result<Option<Arc<Class>>, Error> {
        if !is_name(name) {
            return Ok(None);
        }
        let key = name.to_owned();
        if let Some(class) = recall(&lock(&self.classes), &key, within(CLASS_AGE_MAX)) {
            return Ok(Some(class));
        }
        let found = self.api.class(name).await?.map(Arc::new);
        if let Some(class) = &found {
            remember(
                &mut lock(&self.classes),
                key,
                class.clone(),
                within(CLASS_AGE_MAX),
            );
        }
        Ok(found)
    }

    /// Returns the class of claims that name none, if there is such. Of several it is the first by
    /// name.
    ///
    /// # Errors
    ///
    /// When the API server does not answer.
    pub async fn default_class(&self) -> Result<Option<Arc<Class>>, Error> {
        if let Some((read, class)) = &*lock(&self.all)
            && read.elapsed() < CLASS_AGE_MAX
        {
            return Ok(class.clone());
        }
        let mut classes = self.api.classes().await?;
        classes.retain(Class::is_default);
        classes.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let class = classes.into_iter().next().map(Arc::new);
        *lock(&self.all) = Some((Instant::now(), class.clone()));
        Ok(class)
    }
}

/// Returns how old something may be now.
fn within(age_max: Duration) -> Age {
    Age {
        now: Instant::now(),
        max: age_max,
    }
}

/// How old something may be now.
#[derive(Clone, Copy)]
struct Age {
    now: Instant,
    max: Duration,
}

impl Age {
    fn covers(self, read: Instant) -> bool {
        self.now.saturating_duration_since(read) < self.max
    }
}

fn recall<K: Ord, V>(memory: &Memory<K, V>, key: &K, age: Age) -> Option<Arc<V>> {
    let (read, value) = memory.get(key)?;
    age.covers(*read).then(|| value.clone())
}

fn remember<K: Ord, V>(memory: &mut Memory<K, V>, key: K, value: Arc<V>, age: Age) {
    if memory.len() >= REMEMBERED_MAX {
        memory.retain(|_, (read, _)| age.covers(*read));
    }
    if memory.len() < REMEMBERED_MAX {
        memory.insert(key, (age.now, value));
    }
}

/// What is behind the lock is whole at any time, also where a holder panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: memory is bounded, and stale entries are not returned.
    #[test]
    fn memory_is_bounded_in_age_and_number() {
        let mut memory = Memory::new();
        let mut age = within(CLAIM_AGE_MAX);
        for key in 0..=REMEMBERED_MAX {
            remember(&mut memory, key, Arc::new(key), age);
        }
        assert_eq!(memory.len(), REMEMBERED_MAX);
        assert_eq!(recall(&memory, &REMEMBERED_MAX, age), None);
        assert_eq!(recall(&memory, &0, age).as_deref(), Some(&0));
        age.now += CLAIM_AGE_MAX;
        assert_eq!(recall(&memory, &0, age), None);
        remember(&mut memory, 5, Arc::new(5), age);
        assert_eq!(memory.len(), 1);
    }
}
