-- A shared library as fishermix 0.3 made it: a photo, a file that cannot be read, and a content whose photo was deleted.
CREATE EXTENSION IF NOT EXISTS vector;
CREATE SCHEMA fishermix;
CREATE TABLE fishermix.state (
    schema integer NOT NULL, model_key text NOT NULL, dimension integer NOT NULL, version bigint NOT NULL
);
CREATE TABLE fishermix.folders (id bigserial PRIMARY KEY, path bytea NOT NULL UNIQUE);
CREATE TABLE fishermix.contents (
    row bigserial PRIMARY KEY, sha256 bytea NOT NULL UNIQUE, point vector NOT NULL, fingerprint bytea
);
CREATE TABLE fishermix.dead (row bigint PRIMARY KEY, day integer NOT NULL);
CREATE TABLE fishermix.photos (
    number bigserial PRIMARY KEY,
    id text NOT NULL UNIQUE,
    path bytea NOT NULL UNIQUE,
    folder bigint NOT NULL REFERENCES fishermix.folders,
    is_file boolean NOT NULL,
    kind text NOT NULL,
    size bigint NOT NULL,
    mtime_ns bigint NOT NULL,
    row bigint REFERENCES fishermix.contents,
    reason text,
    taken text COLLATE "C", taken_from text, camera text, latitude double precision, longitude double precision,
    width bigint, height bigint, place text, region text,
    CHECK ((row IS NULL) != (reason IS NULL))
);
CREATE INDEX photos_by_row ON fishermix.photos (row);
CREATE INDEX photos_by_time ON fishermix.photos (taken);
CREATE INDEX photos_by_place ON fishermix.photos (latitude, longitude);
CREATE TABLE fishermix.names (
    rowid bigint PRIMARY KEY REFERENCES fishermix.photos ON DELETE CASCADE,
    file text NOT NULL, folders text NOT NULL, place text NOT NULL
);
CREATE FUNCTION fishermix.distance_km(
    a double precision, b double precision, c double precision, d double precision
) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT 2 * 6371.0 * asin(least(1, sqrt(
        sin(radians(c - a) / 2) ^ 2 + cos(radians(a)) * cos(radians(c)) * sin(radians(d - b) / 2) ^ 2)))
$$;
INSERT INTO fishermix.state VALUES (3, 'model', 4, 5);
INSERT INTO fishermix.folders (path) VALUES ('/a');
INSERT INTO fishermix.contents (sha256, point, fingerprint) VALUES
    (decode(repeat('01', 32), 'hex'), '[1,0,0,0]', decode(repeat('07', 32), 'hex')),
    (decode(repeat('02', 32), 'hex'), '[0,1,0,0]', NULL);
INSERT INTO fishermix.dead VALUES (2, 20000);
INSERT INTO fishermix.photos (
    id, path, folder, is_file, kind, size, mtime_ns, row, reason, taken, taken_from, camera, latitude, longitude,
    width, height, place, region
) VALUES
    ('0000000000000001', '/a/llama.jpg', 1, TRUE, 'JPEG', 1, 2, 1, NULL, '2019-07-14T12:30:00', 'exif',
     'Canon PowerShot', -12.05, -77.04, 4000, 3000, 'Lima, Peru', 'Lima Province'),
    ('0000000000000002', '/a/broken.jpg', 1, TRUE, 'JPEG', 1, 2, NULL, 'is cut off', NULL, NULL, NULL, NULL, NULL,
     NULL, NULL, NULL, NULL);
INSERT INTO fishermix.names VALUES (1, 'llama jpg', 'a', 'lima peru lima province'), (2, 'broken jpg', 'a', '');
