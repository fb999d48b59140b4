/* Orthographic camera for clouds in three dimensions. */

const MAX_PITCH = Math.PI / 2; // radians
const [DEFAULT_YAW, DEFAULT_PITCH] = [-0.5, 0.35]; // radians

export class Camera {
  constructor(yaw = DEFAULT_YAW, pitch = DEFAULT_PITCH) {
    Object.assign(this, { yaw, pitch });
  }

  rotate(yaw, pitch) {
    this.yaw = (this.yaw + yaw) % (2 * Math.PI);
    this.pitch = Math.max(-MAX_PITCH, Math.min(MAX_PITCH, this.pitch + pitch));
  }

  /** The unit vectors to the right, upwards and towards the viewer. */
  get axes() {
    const [c, s, C, S] = [Math.cos(this.yaw), Math.sin(this.yaw), Math.cos(this.pitch), Math.sin(this.pitch)];
    return [
      [c, s, 0],
      [-s * S, c * S, C],
      [s * C, -c * C, S],
    ];
  }
}

/** Returns the coordinates along `axes` of points, both flat: `points` is x, y, z of one point after another. */
export function projectPoints(points, axes) {
  const result = new Float64Array((points.length / 3) * axes.length);
  for (let i = 0; 3 * i < points.length; i += 1)
    axes.forEach((axis, k) => {
      result[axes.length * i + k] =
        axis[0] * points[3 * i] + axis[1] * points[3 * i + 1] + axis[2] * points[3 * i + 2];
    });
  return result;
}
