//! Table `signing_keys`: the keys of opaque strings, sealed, shared by all gateways of the store.

use super::master_key::{MasterKey, random};
use super::{Db, DbError, on};

/// A key: number and bytes.
pub type SigningKey = (u64, [u8; 32]);

impl Db {
    /// The keys of a kind, oldest first; makes the first one. Two gateways that start at once agree: the key number is
    /// the primary key, so one insert wins.
    ///
    /// # Errors
    /// [`DbError::WrongMasterKey`] when a key does not open; [`DbError::Sql`].
    pub async fn signing_keys(
        &self,
        kind: &str,
        master: &MasterKey,
        now_ms: u64,
    ) -> Result<Vec<SigningKey>, DbError> {
        let mut keys = self.read_keys(kind, master).await?;
        if keys.is_empty() {
            let secret = random::<32>().map_err(|_| DbError::WrongMasterKey)?;
            let kid = format!("{kind}:1");
            let sealed = master.seal(&kid, &secret)?;
            const SQL: &str = "INSERT INTO signing_keys (kid, kind, key_enc, state, created_at) \
                               VALUES ($1, $2, $3, 'active', $4) ON CONFLICT (kid) DO NOTHING";
            let at = i64::try_from(now_ms).unwrap_or(i64::MAX);
            on!(self, pool => sqlx::query(SQL).bind(&kid).bind(kind).bind(&sealed).bind(at).execute(pool).await)?;
            keys = self.read_keys(kind, master).await?;
        }
        Ok(keys)
    }

    async fn read_keys(&self, kind: &str, master: &MasterKey) -> Result<Vec<SigningKey>, DbError> {
        const SQL: &str = "SELECT kid, key_enc FROM signing_keys WHERE kind = $1 AND state IN ('active', 'verify') \
                           ORDER BY created_at, kid";
        let rows: Vec<(String, String)> =
            on!(self, pool => sqlx::query_as(SQL).bind(kind).fetch_all(pool).await)?;
        rows.iter()
            .map(|(kid, sealed)| {
                let number = kid
                    .rsplit(':')
                    .next()
                    .and_then(|n| n.parse().ok())
                    .ok_or(DbError::WrongMasterKey)?;
                let secret = master.open(kid, sealed)?;
                Ok((
                    number,
                    secret.try_into().map_err(|_| DbError::WrongMasterKey)?,
                ))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keys_survive_a_restart_and_need_their_master_key() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", dir.path().join("gateway.db").display());
        let master = MasterKey::open_or_create(&dir.path().join("master-key")).unwrap();
        let first = Db::open(&url)
            .await
            .unwrap()
            .signing_keys("receipt", &master, 1)
            .await
            .unwrap();
        let db = Db::open(&url).await.unwrap();
        assert_eq!(db.signing_keys("receipt", &master, 2).await.unwrap(), first);
        let other = MasterKey::open_or_create(&dir.path().join("other")).unwrap();
        assert!(matches!(
            db.signing_keys("receipt", &other, 3).await,
            Err(DbError::WrongMasterKey)
        ));
        assert!(matches!(
            Db::open("mysql://x").await,
            Err(DbError::Address(_))
        ));
    }
}
