"""The text of Gradle modules, with `$name` where a model's own things go."""

from __future__ import annotations

from string import Template

GRADLE = Template("""\
// A module for Gradle: include(":${name}_android") in settings.gradle.kts, with the project's folder, and
// implementation(project(":${name}_android")) where it is used.
plugins {
    id("com.android.library")
    id("org.jetbrains.kotlin.android")
}

// One folder for each ABI that the model was exported for.
val abis = file("src/main/cpp").listFiles { entry -> entry.isDirectory }!!.map { it.name }

android {
    namespace = "$package"
    compileSdk = 34
    defaultConfig {
        minSdk = $min_api
        ndk { abiFilters += abis }
    }
    externalNativeBuild { cmake { path = file("src/main/cpp/CMakeLists.txt") } }
    androidResources { noCompress += "bin" }
}
""")
MANIFEST = """\
<?xml version="1.0" encoding="utf-8"?>
<manifest />
"""
CMAKE = Template("""\
# The library that the class $class_name loads.
cmake_minimum_required(VERSION 3.13)
project(${name}_jni C)
set(native "$${CMAKE_CURRENT_SOURCE_DIR}/$${ANDROID_ABI}")
if(NOT EXISTS "$${native}/lib$name.a")
  message(FATAL_ERROR "$name was not exported for $${ANDROID_ABI}: export it with --target-triple and --with android")
endif()
add_library(${name}_jni SHARED ${name}_jni.c)
target_include_directories(${name}_jni PRIVATE "$${native}")
target_link_libraries(${name}_jni PRIVATE "$${native}/lib$name.a" m)
set_target_properties(${name}_jni PROPERTIES C_VISIBILITY_PRESET hidden)
target_link_options(${name}_jni PRIVATE -Wl,-z,max-page-size=16384)
""")
JNI = Template("""\
/* ${name}_jni.c: the methods of $package.$class_name. */
#include <jni.h>

#include "$name.h"

/* A model is a number in Java: its address. */
static ${name}_model *model_of(jlong number) { return (${name}_model *)(intptr_t)number; }

static void fail(JNIEnv *env, const char *class_name, const char *reason) {
    jclass kind = (*env)->FindClass(env, class_name);
    if (kind) (*env)->ThrowNew(env, kind, reason);
}

static void check(JNIEnv *env, ${name}_model *self, int status) {
    if (status) fail(env, "java/lang/IllegalStateException", ${name}_error_message(self));
}

$create
JNIEXPORT void JNICALL ${prefix}destroy(JNIEnv *env, jclass owner, jlong model) {
    (void)env;
    (void)owner;
    ${name}_free(model_of(model));
}

/* An array, of the sizes of the next run. */
JNIEXPORT jobject JNICALL ${prefix}buffer(JNIEnv *env, jclass owner, jlong model, jint array) {
    ${name}_model *self = model_of(model);
    void *address = self + 1;
    size_t bytes = 0;
    (void)owner;
    switch (array) {
$buffers    default: break;
    }
    return (*env)->NewDirectByteBuffer(env, address, (jlong)bytes);
}

JNIEXPORT void JNICALL ${prefix}compute(JNIEnv *env, jclass owner, jlong model, jint function) {
    ${name}_model *self = model_of(model);
    int status = -1;
    (void)owner;
    switch (function) {
$runs    default: break;
    }
    check(env, self, status);
}
$sizes$state$constants""")
CREATE = Template("""\
JNIEXPORT jlong JNICALL ${prefix}create(JNIEnv *env, jclass owner) {
    ${name}_model *self = ${name}_new();
    (void)owner;
    if (!self) fail(env, "java/lang/OutOfMemoryError", "$name: no memory is left");
    return (jlong)(intptr_t)self;
}
""")
CREATE_OPEN = Template("""\
JNIEXPORT jlong JNICALL ${prefix}create(JNIEnv *env, jclass owner, jlongArray most) {
    jlong sizes[${NAME}_SIZES];
    int64_t bounds[${NAME}_SIZES];
    ${name}_model *self;
    (void)owner;
    if ((*env)->GetArrayLength(env, most) != ${NAME}_SIZES) {
        fail(env, "java/lang/IllegalArgumentException", "$name: as many bounds as sizes are wanted");
        return 0;
    }
    (*env)->GetLongArrayRegion(env, most, 0, ${NAME}_SIZES, sizes);
    for (int k = 0; k < ${NAME}_SIZES; k++) bounds[k] = sizes[k];
    self = ${name}_new(bounds);
    if (!self) fail(env, "java/lang/OutOfMemoryError", "$name: no memory is left");
    return (jlong)(intptr_t)self;
}
""")
CASE_BUFFER = Template("    case $number: address = $address, bytes = $bytes; break;\n")
CASE_RUN = Template("    case $number: status = ${call}_run(self); break;\n")
JNI_SIZES = Template("""
JNIEXPORT void JNICALL ${prefix}size(JNIEnv *env, jclass owner, jlong model, jint place, jlong value) {
    (void)owner;
    if (place < 0 || place >= ${NAME}_SIZES)
        fail(env, "java/lang/IllegalArgumentException", "$name: there is no such size");
    else
        model_of(model)->sizes[place] = value;
}
""")
JNI_STATE = Template("""
JNIEXPORT void JNICALL ${prefix}reset(JNIEnv *env, jclass owner, jlong model) {
    (void)owner;
    check(env, model_of(model), ${name}_reset(model_of(model)));
}

JNIEXPORT jbyteArray JNICALL ${prefix}getState(JNIEnv *env, jclass owner, jlong model) {
    ${name}_model *self = model_of(model);
    jbyteArray state = (*env)->NewByteArray(env, ${NAME}_STATE_BYTES);
    (void)owner;
    if (!state) return NULL;
    if (!self->has_state && ${name}_reset(self)) {
        check(env, self, -1);
        return NULL;
    }
    (*env)->SetByteArrayRegion(env, state, 0, ${NAME}_STATE_BYTES, (const jbyte *)self->state);
    return state;
}

JNIEXPORT void JNICALL ${prefix}setState(JNIEnv *env, jclass owner, jlong model, jbyteArray state) {
    ${name}_model *self = model_of(model);
    (void)owner;
    if ((*env)->GetArrayLength(env, state) != ${NAME}_STATE_BYTES) {
        fail(env, "java/lang/IllegalArgumentException", "$name: this is no state of the model: it has other bytes");
        return;
    }
    (*env)->GetByteArrayRegion(env, state, 0, ${NAME}_STATE_BYTES, (jbyte *)self->state);
    self->has_state = true;
}
""")
JNI_CONSTANTS = Template("""
JNIEXPORT jlong JNICALL ${prefix}address(JNIEnv *env, jclass owner, jobject buffer) {
    (void)owner;
    return (jlong)(intptr_t)(*env)->GetDirectBufferAddress(env, buffer);
}

JNIEXPORT void JNICALL ${prefix}setConstants(JNIEnv *env, jclass owner, jlong model, jobject constants) {
    const char *address = (const char *)(*env)->GetDirectBufferAddress(env, constants);
    (void)owner;
    if (!address || (*env)->GetDirectBufferCapacity(env, constants) < (jlong)${NAME}_CONSTANTS_BYTES)
        fail(env, "java/lang/IllegalArgumentException", "$name: a direct buffer of all of $name.bin is wanted");
    else
        ${name}_set_constants(model_of(model), address);
}
""")
KOTLIN = Template("""\
package $package

import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.DoubleBuffer
import java.nio.FloatBuffer
import java.nio.IntBuffer
import java.nio.LongBuffer
import java.nio.ShortBuffer

/**
 * The model $name, compiled ahead of time by tfbridge $version.
 *
$listed
 *
 * Arrays are row-major, in buffers over the model's own memory: each use of one gives a buffer that is at its first
 * element. A model may be used by one thread at a time; any number of them may run at once. [close] gives its memory
 * back.
 */
class $class_name$parameters : AutoCloseable {
    private var model: Long = create($most)

    private fun open(): Long {
        check(model != 0L) { "$name: the model is closed" }
        return model
    }

    private fun bytes(array: Int): ByteBuffer = buffer(open(), array).order(ByteOrder.nativeOrder())

$runs$sizes$state$constants$arrays
    /** Gives the memory back; the buffers may not be used any more. */
    override fun close() {
        if (model != 0L) destroy(model)
        model = 0L
    }

    companion object {
$places        init {
            System.loadLibrary("${name}_jni")
        }

        @JvmStatic private external fun create($most_type): Long
        @JvmStatic private external fun destroy(model: Long)
        @JvmStatic private external fun buffer(model: Long, array: Int): ByteBuffer
        @JvmStatic private external fun compute(model: Long, function: Int)
$size_natives$state_natives$constants_natives    }
}
""")
NO_PARAMETERS = ""
OPEN_PARAMETERS = "(most: LongArray)"
RUN = Template("""\
    /** Computes the results from the arguments; an IllegalStateException tells why it cannot. */
    fun $run() = compute(open(), $number)

""")
SIZES = """\
    /** Tells a size of the next runs, by its place. */
    fun setSize(place: Int, value: Long) = size(open(), place, value)

"""
SIZE = Template("""\
        /** The place of a size. $documentation */
        const val SIZE_$NAME = $place

""")
SIZE_NATIVES = "        @JvmStatic private external fun size(model: Long, place: Int, value: Long)\n"
STATE = """\
    /** Gives the state its first values. The first run does so by itself. */
    fun reset() = reset(open())

    /** A copy of the state: to save it, or to go on elsewhere. */
    fun getState(): ByteArray = getState(open())

    /** Makes a copy of a state the present one. */
    fun setState(state: ByteArray) = setState(open(), state)

"""
STATE_NATIVES = """\
        @JvmStatic private external fun reset(model: Long)
        @JvmStatic private external fun getState(model: Long): ByteArray
        @JvmStatic private external fun setState(model: Long, state: ByteArray)
"""
CONSTANTS = Template("""\
    private var constants: ByteBuffer? = null // stays as long as the model

    /** Tells the contents of $file, at a multiple of 64: a mapped asset, or those that [aligned] has copied. */
    fun setConstants(contents: ByteBuffer) {
        setConstants(open(), contents)
        constants = contents
    }

    /** A direct buffer, at a multiple of 64, with the bytes of an array. */
    fun aligned(contents: ByteArray): ByteBuffer {
        val room = ByteBuffer.allocateDirect(contents.size + 64)
        room.position(((64 - address(room) % 64) % 64).toInt())
        val place = room.slice()
        place.put(contents)
        place.rewind()
        return place
    }

""")
CONSTANTS_NATIVES = """\
        @JvmStatic private external fun setConstants(model: Long, constants: ByteBuffer)
        @JvmStatic private external fun address(buffer: ByteBuffer): Long
"""
ARRAY = Template("""\
    /**
     * $documentation
     */
    val $which: $type get() = bytes($number)$view

""")
NAMED = Template("    val $own: $type get() = $which\n\n")
