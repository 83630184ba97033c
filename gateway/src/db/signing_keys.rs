//! Table `signing_keys`: the keys of opaque strings, sealed, shared by all gateways of the store.

use super::master_key::{MasterKey, random};
use super::{Db, DbError, limited, on};

/// A key of the table.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    /// Number, unique in its kind, > 0.
    pub number: u64,
    /// The key itself.
    pub secret: [u8; 32],
    /// Whether it may sign; else it only verifies.
    pub signs: bool,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({}, signs: {})", self.number, self.signs)
    }
}

/// kid, sealed secret, state.
type Row = (String, String, String);

impl Db {
    /// The keys of a kind, by number; makes the first one. Gateways that start at once agree: the key number is
    /// the primary key, so one insert wins and all read what is there.
    ///
    /// # Errors
    /// [`DbError::WrongMasterKey`] or [`DbError::Plain`] when a key does not open; [`DbError::NoActiveKey`];
    /// [`DbError::Sql`], [`DbError::Slow`].
    pub async fn signing_keys(
        &self,
        kind: &str,
        master: &MasterKey,
        now_ms: u64,
    ) -> Result<Vec<SigningKey>, DbError> {
        let keys = self.read_keys(kind, master).await?;
        if !keys.is_empty() {
            return with_one_that_signs(kind, keys);
        }
        const SQL: &str = "INSERT INTO signing_keys (kid, kind, key_enc, state, created_at) \
                           VALUES ($1, $2, $3, 'active', $4) ON CONFLICT (kid) DO NOTHING";
        let kid = format!("{kind}:1");
        let sealed = master.seal(&row_name(&kid), &random::<32>()?)?;
        let at = i64::try_from(now_ms).unwrap_or(i64::MAX);
        limited(async {
            on!(self, pool => sqlx::query(SQL).bind(&kid).bind(kind).bind(&sealed).bind(at).execute(pool).await.map(drop))
        })
        .await?;
        with_one_that_signs(kind, self.read_keys(kind, master).await?)
    }

    /// The keys of a kind as they are now, by number; maybe none, or none that signs.
    ///
    /// # Errors
    /// [`DbError::WrongMasterKey`], [`DbError::Plain`], [`DbError::Sql`], [`DbError::Slow`].
    pub async fn read_keys(
        &self,
        kind: &str,
        master: &MasterKey,
    ) -> Result<Vec<SigningKey>, DbError> {
        const SQL: &str = "SELECT kid, key_enc, state FROM signing_keys \
                           WHERE kind = $1 AND state IN ('active', 'verify')";
        let rows: Vec<Row> = limited(async {
            on!(self, pool => sqlx::query_as(SQL).bind(kind).fetch_all(pool).await)
        })
        .await?;
        let keys: Result<Vec<_>, _> = rows.iter().map(|row| open(row, master)).collect();
        let mut keys = keys?;
        keys.sort_by_key(|key| key.number);
        Ok(keys)
    }

    /// Whether the store holds any secret that a master key has sealed.
    ///
    /// # Errors
    /// [`DbError::Sql`], [`DbError::Slow`].
    pub async fn holds_secrets(&self) -> Result<bool, DbError> {
        const SQL: &str = "SELECT kid FROM signing_keys LIMIT 1";
        let row: Option<(String,)> =
            limited(async { on!(self, pool => sqlx::query_as(SQL).fetch_optional(pool).await) })
                .await?;
        Ok(row.is_some())
    }
}

/// Without a key that signs, receipts and cursors would open nowhere.
fn with_one_that_signs(kind: &str, keys: Vec<SigningKey>) -> Result<Vec<SigningKey>, DbError> {
    if keys.iter().any(|key| key.signs) {
        Ok(keys)
    } else {
        Err(DbError::NoActiveKey {
            kind: kind.to_owned(),
        })
    }
}

fn open((kid, sealed, state): &Row, master: &MasterKey) -> Result<SigningKey, DbError> {
    let row = row_name(kid);
    let secret = master.open(&row, sealed)?;
    let number = kid.rsplit(':').next().and_then(|n| n.parse().ok());
    match (number, secret.try_into()) {
        (Some(number), Ok(secret)) => Ok(SigningKey {
            number,
            secret,
            signs: state == "active",
        }),
        _ => Err(DbError::WrongMasterKey { row }),
    }
}

/// What the seal is bound to, so that a sealed secret put into another row does not open.
fn row_name(kid: &str) -> String {
    format!("signing_keys.key_enc of {kid}")
}
